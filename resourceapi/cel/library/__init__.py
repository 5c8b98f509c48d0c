"""The function libraries of the language, one module each: tables of overloads and their implementations."""
