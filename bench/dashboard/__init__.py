"""What the dashboard costs in a browser: see ``__main__``."""
