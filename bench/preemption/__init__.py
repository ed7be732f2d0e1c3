"""Many preemptors, or many whose queue takes back what it lent, onto nodes that are full: how fast, for how many."""
