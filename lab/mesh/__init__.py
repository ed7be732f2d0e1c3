"""The mesh as a world: the services' own cores, in one place and in virtual time, for suites to place pods through."""
