"""What nodes lend to offline pods, from measurement to what is to be written. Pure."""
