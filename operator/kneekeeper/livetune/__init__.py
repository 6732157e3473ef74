"""Live tuning: a vLLM general plugin that changes both limits between engine steps, without a restart.

It is copied into the user's engine by an init container, so it imports nothing but the standard library and, in
`plugin`, vLLM itself; it runs on Python 3.9 and later; and its imports of itself are relative, since there it is
the package `kneekeeper_livetune`. The modules:

- `limits`: which values are safe, and which are due now (pure);
- `environment`: the variables that switch it on (pure);
- `channel`: the HTTP endpoint by which they are changed in clones, and read;
- `limits_file`: the file by which they are changed in production;
- `messages`: what that endpoint says;
- `scheduler_hook`: how vLLM's scheduler is changed, by version;
- `plugin`: the entry point that vLLM calls;
- `deliver`: writes all this into a folder, with the metadata by which vLLM finds it.
"""
