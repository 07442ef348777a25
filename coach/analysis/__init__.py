"""Pure judgements that are no rules: values in, values out."""
