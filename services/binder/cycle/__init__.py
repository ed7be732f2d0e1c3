"""The binding cycle of one unit: check, commit, bind; and evictions. Pure."""
