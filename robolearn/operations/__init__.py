"""Does what each command does, as a function with a typed result; composes the packages."""
