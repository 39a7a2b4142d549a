"""`sweep`: what bears our marks and belongs to no living annex."""
