"""The learned GPU placement policy, FGD and best fit."""
