"""The papers' experiments as pure environments."""
