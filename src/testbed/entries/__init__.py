"""Models and eval settings as registry files declare them, the registry itself, and settings given as strings."""
