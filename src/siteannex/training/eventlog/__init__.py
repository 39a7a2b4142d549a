"""HTCondor's job event logs."""
