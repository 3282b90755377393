"""Questions about generated scenes: a learner of concepts and programs."""
