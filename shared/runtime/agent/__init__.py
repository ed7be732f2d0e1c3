"""What an agent does beside deciding: follow the policy pointer, send what it lived through to the learner."""
