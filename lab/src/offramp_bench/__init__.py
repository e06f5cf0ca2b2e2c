"""The laboratory of offramp: rivals, tasks, benchmarks and the page about the paper."""
