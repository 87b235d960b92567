"""Changes of images: corruptions, attacks, geometry, colour, meta sets, and the seeding of their randomness."""
