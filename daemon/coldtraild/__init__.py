"""The service and the command line: decides when; the library knows how."""
