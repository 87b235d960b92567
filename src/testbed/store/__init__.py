"""Where results live: the database (schema, migrations, queries) and the logits files. Imports no torch."""
