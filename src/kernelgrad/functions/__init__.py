"""What a fitted function is: features and coefficients, or rows and coefficients."""
