"""The dashboard: a small read-only server, and one page that it carries.

`store` holds the last known profiles, runs and events, filled by `watches` from an API server or by `files` from a
folder; `domain.views` turns them into what the page shows and asks the twin, and `server` speaks HTTP. The page in
`static/` shows no number that these views did not give. May import every layer below, and writes nothing but through
`access`, with the viewer's own token.
"""
