"""What people see: tables, figures, pages and traces."""
