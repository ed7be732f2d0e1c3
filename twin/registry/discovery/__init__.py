"""Discovery, OpenAPI and tables, made of the served kinds."""
