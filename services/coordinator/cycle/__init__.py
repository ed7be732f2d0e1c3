"""The scheduling cycle: take units, constrain, offer, assign; what happens to units that no node takes."""
