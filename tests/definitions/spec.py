"""Names, scope, versions, subresources, columns, selectable fields and conversion."""

from __future__ import annotations

from typing import Any

from tests.definitions.build import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    array,
    definition,
    field,
    kw,
    mapping,
    obj,
    version,
)

Json = dict[str, Any]
SCALED = obj(
    {"spec": obj({"replicas": INTEGER}), "status": obj({"replicas": INTEGER, "selector": STRING})},
)
SCALE: Json = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
SELECTED = obj({
    "spec": obj({
        "colour": STRING, "on": BOOLEAN, "n": INTEGER, "share": NUMBER, "tags": mapping(STRING),
        "list": array(STRING), "deep": obj({"x": STRING}), "when": kw(STRING, format="date-time"),
        "anything": obj(x_preserve_unknown_fields=True),
        **{f"f{i}": STRING for i in range(9)},
    })
})  # fmt: skip
WEBHOOK: Json = {
    "clientConfig": {"url": "https://convert.example/x"},
    "conversionReviewVersions": ["v1"],
}


def scaled(**scale: Any) -> Json:
    given = {**SCALE, **scale}
    kept = {key: value for key, value in given.items() if value is not None}
    return definition(versions=[version(SCALED, subresources={"status": {}, "scale": kept})])


def column(**given: Any) -> Json:
    whole = {"name": "A", "type": "string", "jsonPath": ".spec.a", **given}
    kept = {key: value for key, value in whole.items() if value is not None}
    return definition(versions=[version(additionalPrinterColumns=[kept])])


def selected(*paths: Any) -> Json:
    return definition(versions=[version(SELECTED, selectableFields=[{"jsonPath": path} for path in paths])])


def converted(strategy: str = "Webhook", webhook: Any = WEBHOOK, **more: Any) -> Json:
    conversion = {"strategy": strategy, **({"webhook": webhook} if webhook is not None else {}), **more}
    return definition(conversion=conversion)


CASES: dict[str, Json] = {
    "good-plain": definition(),
    # names
    "name-of-another": definition(metadata={"name": "others.check.conclave.io"}),
    "name-with-capitals": definition(names={"plural": "Things"}),
    "plural-missing": definition(names={"plural": None}),
    "plural-empty": definition(names={"plural": ""}, metadata={"name": ".check.conclave.io"}),
    "kind-missing": definition(names={"kind": None}),
    "kind-with-dash-at-the-end": definition(names={"kind": "Thing-"}),
    "kind-with-space": definition(names={"kind": "My Thing"}),
    "kind-in-small-letters": definition(names={"kind": "thing"}),
    "singular-with-capitals": definition(names={"singular": "Thing"}),
    "list-kind-is-the-kind": definition(names={"listKind": "Thing"}),
    "list-kind-bad": definition(names={"listKind": "Thing_List"}),
    "short-name-with-capitals": definition(names={"shortNames": ["th", "TH"]}),
    "short-name-empty": definition(names={"shortNames": [""]}),
    "category-with-capitals": definition(names={"categories": ["All"]}),
    "good-categories": definition(names={"categories": ["all", "conclave"], "shortNames": ["th"]}),
    "plural-too-long": definition(names={"plural": "a" * 64}),
    # group and scope
    "group-missing": definition(group="", metadata={"name": "things."}),
    "group-without-dot": definition(group="check"),
    "group-with-capitals": definition(group="Check.conclave.io"),
    "group-of-kubernetes": definition(group="check.k8s.io"),
    "group-of-kubernetes-approved": definition(
        group="check.k8s.io",
        metadata={"annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}},
    ),
    "group-of-kubernetes-unapproved": definition(
        group="check.k8s.io", metadata={"annotations": {"api-approved.kubernetes.io": "unapproved, an experiment"}}
    ),
    "group-of-kubernetes-odd-approval": definition(
        group="check.kubernetes.io", metadata={"annotations": {"api-approved.kubernetes.io": "yes"}}
    ),
    "scope-missing": definition(scope=None),
    "scope-unknown": definition(scope="namespaced"),
    "good-cluster-scope": definition(scope="Cluster"),
    "preserve-unknown-fields-of-the-definition": definition(preserveUnknownFields=True),
    "preserve-unknown-fields-false": definition(preserveUnknownFields=False),
    # versions
    "versions-missing": definition(versions=None),
    "versions-empty": definition(versions=[]),
    "no-storage-version": definition(versions=[version(storage=False)]),
    "two-storage-versions": definition(versions=[version(), version(name="v2")]),
    "version-twice": definition(versions=[version(), version(storage=False)]),
    "version-name-bad": definition(versions=[version(name="1.0")]),
    "version-without-schema": definition(versions=[version(False)]),
    "one-of-two-versions-without-schema": definition(versions=[version(), version(False, "v2", storage=False)]),
    "version-with-empty-schema": definition(versions=[{"name": "v1", "served": True, "storage": True, "schema": {}}]),
    "good-two-versions": definition(versions=[version(), version(name="v2", storage=False)]),
    "good-unserved-storage": definition(versions=[version(served=False)]),
    "version-without-served": definition(
        versions=[{"name": "v1", "storage": True, "schema": {"openAPIV3Schema": obj()}}]
    ),
    "deprecation-warning-without-deprecated": definition(versions=[version(deprecationWarning="old")]),
    "deprecation-warning-empty": definition(versions=[version(deprecated=True, deprecationWarning="")]),
    "deprecation-warning-too-long": definition(versions=[version(deprecated=True, deprecationWarning="x" * 257)]),
    "deprecation-warning-with-line-break": definition(versions=[version(deprecated=True, deprecationWarning="a\nb")]),
    "good-deprecation": definition(versions=[version(deprecated=True, deprecationWarning="use v2")]),
    "bad-schema-in-second-version": definition(
        versions=[version(), version(obj({"spec": obj({"x": {"type": "array"}})}), "v2", storage=False)]
    ),
    # status and scale
    "good-status": definition(versions=[version(SCALED, subresources={"status": {}})]),
    "status-beside-additional-all-of": definition(
        versions=[
            version(obj({"spec": obj({"a": STRING})}, allOf=[{"required": ["spec"]}]), subresources={"status": {}})
        ]
    ),
    "status-beside-root-any-of": definition(
        versions=[
            version(obj({"spec": obj({"a": STRING})}, anyOf=[{"required": ["spec"]}]), subresources={"status": {}})
        ]
    ),
    "status-beside-root-min-properties": definition(
        versions=[version(obj({"spec": obj()}, minProperties=1), subresources={"status": {}})]
    ),
    "status-beside-root-required": definition(
        versions=[version(obj({"spec": obj()}, required=["spec"]), subresources={"status": {}})]
    ),
    "root-any-of-without-status": definition(obj({"spec": obj({"a": STRING})}, anyOf=[{"required": ["spec"]}])),
    "good-scale": scaled(labelSelectorPath=".status.selector"),
    "scale-without-spec-path": scaled(specReplicasPath=None),
    "scale-spec-path-empty": scaled(specReplicasPath=""),
    "scale-spec-path-elsewhere": scaled(specReplicasPath=".status.replicas"),
    "scale-spec-path-without-dot": scaled(specReplicasPath="spec.replicas"),
    "scale-spec-path-is-spec": scaled(specReplicasPath=".spec"),
    "scale-without-status-path": scaled(statusReplicasPath=None),
    "scale-status-path-elsewhere": scaled(statusReplicasPath=".spec.replicas"),
    "scale-status-path-without-dot": scaled(statusReplicasPath="status.replicas"),
    "scale-selector-path-elsewhere": scaled(labelSelectorPath=".metadata.labels"),
    "scale-selector-path-without-dot": scaled(labelSelectorPath="status.selector"),
    "scale-selector-path-in-spec": scaled(labelSelectorPath=".spec.selector"),
    "scale-path-to-no-field": scaled(specReplicasPath=".spec.nope"),
    # columns
    "good-column": column(),
    "column-without-name": column(name=None),
    "column-name-empty": column(name=""),
    "column-without-type": column(type=None),
    "column-type-unknown": column(type="text"),
    "column-format-unknown": column(format="colour"),
    "good-column-format": column(type="integer", format="int64"),
    "column-without-path": column(jsonPath=None),
    "column-path-empty": column(jsonPath=""),
    "column-path-without-dot": column(jsonPath="spec.a"),
    "column-path-with-filter": column(jsonPath='.status.conditions[?(@.type=="Ready")].status'),
    "column-path-unclosed": column(jsonPath=".spec.a["),
    "column-path-braces": column(jsonPath="{.spec.a}"),
    "column-priority-is-a-word": column(priority="high"),
    "same-columns-in-two-versions": definition(
        versions=[
            version(additionalPrinterColumns=[{"name": "A", "type": "x", "jsonPath": ".a"}]),
            version(name="v2", storage=False, additionalPrinterColumns=[{"name": "A", "type": "x", "jsonPath": ".a"}]),
        ]
    ),
    # selectable fields
    "good-selectable": selected(".spec.colour", ".spec.on", ".spec.n", ".spec.deep.x", ".spec.when"),
    "selectable-number": selected(".spec.share"),
    "selectable-object": selected(".spec.deep"),
    "selectable-list": selected(".spec.list"),
    "selectable-list-item": selected(".spec.list[0]"),
    "selectable-map-value": selected(".spec.tags.a"),
    "selectable-map-value-quoted": selected(".spec.tags['a.b']"),
    "selectable-unknown": selected(".spec.nope"),
    "selectable-in-anything": selected(".spec.anything.x"),
    "selectable-metadata": selected(".metadata.name"),
    "selectable-metadata-label": selected(".metadata.labels"),
    "selectable-without-dot": selected("spec.colour"),
    "selectable-empty": selected(""),
    "selectable-twice": selected(".spec.colour", ".spec.colour"),
    "selectable-nine": selected(*(f".spec.f{i}" for i in range(9))),
    "selectable-eight": selected(*(f".spec.f{i}" for i in range(8))),
    "selectable-kind": selected(".kind"),
    # conversion
    "good-webhook": converted(),
    "conversion-unknown": converted("Magic", None),
    "conversion-empty-strategy": converted("", None),
    "none-with-webhook": converted("None"),
    "webhook-missing": converted(webhook=None),
    "webhook-without-client": converted(webhook={"conversionReviewVersions": ["v1"]}),
    "webhook-without-versions": converted(webhook={"clientConfig": {"url": "https://x.example"}}),
    "webhook-versions-empty": converted(webhook={**WEBHOOK, "conversionReviewVersions": []}),
    "webhook-versions-unknown": converted(webhook={**WEBHOOK, "conversionReviewVersions": ["v9"]}),
    "webhook-versions-twice": converted(webhook={**WEBHOOK, "conversionReviewVersions": ["v1", "v1"]}),
    "webhook-versions-bad": converted(webhook={**WEBHOOK, "conversionReviewVersions": ["v1", "1x"]}),
    "webhook-url-http": converted(webhook={**WEBHOOK, "clientConfig": {"url": "http://x.example"}}),
    "webhook-url-with-query": converted(webhook={**WEBHOOK, "clientConfig": {"url": "https://x.example/?a=b"}}),
    "webhook-url-with-user": converted(webhook={**WEBHOOK, "clientConfig": {"url": "https://a:b@x.example/"}}),
    "webhook-url-with-fragment": converted(webhook={**WEBHOOK, "clientConfig": {"url": "https://x.example/#a"}}),
    "webhook-url-without-host": converted(webhook={**WEBHOOK, "clientConfig": {"url": "https:///x"}}),
    "webhook-url-and-service": converted(
        webhook={**WEBHOOK, "clientConfig": {"url": "https://x.example", "service": {"name": "a", "namespace": "b"}}}
    ),
    "webhook-neither": converted(webhook={**WEBHOOK, "clientConfig": {}}),
    "webhook-service": converted(webhook={**WEBHOOK, "clientConfig": {"service": {"name": "a", "namespace": "b"}}}),
    "webhook-service-without-name": converted(
        webhook={**WEBHOOK, "clientConfig": {"service": {"name": "", "namespace": "b"}}}
    ),
    "webhook-service-without-namespace": converted(
        webhook={**WEBHOOK, "clientConfig": {"service": {"name": "a", "namespace": ""}}}
    ),
    "webhook-service-port": converted(
        webhook={**WEBHOOK, "clientConfig": {"service": {"name": "a", "namespace": "b", "port": 70000}}}
    ),
    "webhook-service-path": converted(
        webhook={**WEBHOOK, "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}}
    ),
    "webhook-service-path-double": converted(
        webhook={**WEBHOOK, "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/a//b"}}}
    ),
    "webhook-bad-authority": converted(
        webhook={**WEBHOOK, "clientConfig": {"url": "https://x.example", "caBundle": "bm90IGEgY2VydA=="}}
    ),
    "several-errors": definition(
        names={"kind": "Bad_Kind", "shortNames": ["UP"]},
        scope="Nowhere",
        group="nodot",
        versions=[version(obj({"spec": obj({"x": {"type": "array"}})}), storage=False)],
    ),
    "good-field": field(kw(STRING, maxLength=5)),
}
