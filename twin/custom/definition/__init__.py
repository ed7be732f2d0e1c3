"""Whether a CustomResourceDefinition is one that a real API server takes.

``spec.py`` is the way in. A definition is judged as the server holds it: what all its versions share (schema,
subresources, columns, selectable fields) stands at the top, and errors name it there. Of each schema: is it structural
(``structure.py``), do its defaults hold (``defaults.py``), are its keywords and rules good (``keywords.py``).

Source: apiextensions ``pkg/apis/apiextensions/validation``, ``pkg/apiserver/schema``. Pure.
"""
