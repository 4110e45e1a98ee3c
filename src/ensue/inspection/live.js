// The live page: it asks the server what happens in its models with what is typed.
