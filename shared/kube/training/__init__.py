"""TrainingJobs and their pods as typed structs, and what is written of them."""
