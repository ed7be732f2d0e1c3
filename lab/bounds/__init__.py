"""Upper bounds: what no scheduler could have exceeded, beside what was reached."""
