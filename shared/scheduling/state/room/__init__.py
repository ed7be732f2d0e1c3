"""Room beside what pods hold: nominated, kept, and what evicting would make."""
