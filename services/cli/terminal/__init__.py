"""Tables, keys, screens and progress on a terminal; Ctrl-C; files written whole."""
