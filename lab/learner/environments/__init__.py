"""The experiments as environments of the usual libraries, for anybody's learner."""
