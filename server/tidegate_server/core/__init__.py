"""What gateway and engine share: errors, the model, the statement language, their messages."""
