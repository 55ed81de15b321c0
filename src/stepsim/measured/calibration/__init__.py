"""What measured runs and micro-benchmarks tell about a machine and its runtime."""
