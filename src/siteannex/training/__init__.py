"""Training: experiments, sweeps, the DAG they become, and what its files say."""
