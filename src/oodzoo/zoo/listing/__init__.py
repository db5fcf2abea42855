"""What is known about models before they are loaded: names, licences, sizes, weights here or not.

There is one module for each source. Each has the functions

- `identifiers(pattern)`: the names that a pattern with wildcards may match;
- `licence(spec)`;
- `measure(spec)`: the parameters in use, and the size of the weights if it can be estimated;
- `weights(spec)`: the folder of the weights and, if known, their size.

Nothing is downloaded except, for Hugging Face models, descriptions of a few kilobytes.
"""
