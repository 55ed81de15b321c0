"""What every room uses: errors, quantities with units, arrays, ranges."""
