"""What a run says: where the step goes, the critical path, links, communications, the report."""
