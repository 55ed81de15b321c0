"""Reports as one HTML file: what a step, a comparison or a sweep found, to look at and to send."""
