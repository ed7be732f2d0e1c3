"""What of a node may be lent to offline pods: what online pods do not use, by a fixed rule. Pure."""
