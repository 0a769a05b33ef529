"""Block descent: rows and responses come in; Newton steps on blocks of rows go out."""
