"""A day of one pool: online services with the tide of their users, offline gangs on what they leave, by the mesh."""
