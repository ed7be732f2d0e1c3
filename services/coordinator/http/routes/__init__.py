"""One file per resource of the admin API: schemas, handlers, rows of the route table."""
