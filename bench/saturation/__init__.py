"""How a full cluster goes: see ``__main__``."""
