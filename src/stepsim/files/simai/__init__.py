"""Workload texts of SimAI, AICB and ASTRA-sim."""
