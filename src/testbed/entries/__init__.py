"""What is evaluated, as registry files declare it: models, eval settings, the registry, settings by string."""
