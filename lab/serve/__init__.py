"""The learner as a service beside a mesh: takes transitions, publishes candidates."""
