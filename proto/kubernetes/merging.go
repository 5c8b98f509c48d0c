package main

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	merge "sigs.k8s.io/structured-merge-diff/v6/schema"
)

var converter = applyconfigurations.NewTypeConverter(scheme)

// What server-side apply knows of a kind; nothing of those that cannot be applied.
func appliedAs(kind schema.GroupVersionKind) (*merge.Schema, *merge.Map) {
	obj, err := scheme.New(kind)
	if err != nil {
		panic(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	typed, err := converter.ObjectToTyped(obj)
	if err != nil {
		return nil, nil
	}
	atom, _ := typed.Schema().Resolve(typed.TypeRef())
	return typed.Schema(), atom.Map
}

// mergedAs says how a field's value is merged, as more columns of its line, and what is below it: of server-side apply
// `keys=A,B` (and `whole`, if each item has one owner), `set` or `atomic` (lists without any of these are atomic), and the
// default of a key; of a strategic merge patch `patch=STRATEGY` and `by=KEY`.
func mergedAs(types *merge.Schema, parent *merge.Map, f reflect.StructField, name string) (string, *merge.Map) {
	var columns strings.Builder
	var below *merge.Map
	if field, found := findField(parent, name); found {
		atom, _ := types.Resolve(field.Type)
		if list := atom.List; list != nil {
			switch {
			case list.ElementRelationship != merge.Associative:
			case len(list.Keys) > 0:
				columns.WriteString(" keys=" + strings.Join(list.Keys, ","))
			default:
				columns.WriteString(" set")
			}
			item, _ := types.Resolve(list.ElementType)
			below = item.Map
			if len(list.Keys) > 0 && below != nil && below.ElementRelationship == merge.Atomic {
				columns.WriteString(" whole")
			}
		} else if below = atom.Map; below != nil {
			if below.ElementRelationship == merge.Atomic {
				columns.WriteString(" atomic")
			}
			if f.Type.Kind() == reflect.Map {
				item, _ := types.Resolve(below.ElementType)
				below = item.Map
			}
		}
		text, isText := field.Default.(string)
		if isText && (text != "" || strings.Contains(f.Tag.Get("json"), "omitempty")) { // or it is written anyway
			columns.WriteString(" default=" + text)
		}
	}
	if f.Type == reflect.TypeFor[runtime.RawExtension]() {
		columns.WriteString(" atomic")
	}
	key := f.Tag.Get("patchMergeKey")
	if parent == nil && key != "" { // of a kind that client-go has no type for: both ways of merging go by one key
		columns.WriteString(" keys=" + key)
	}
	if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
		columns.WriteString(" patch=" + strategy)
	}
	if key != "" {
		columns.WriteString(" by=" + key)
	}
	return columns.String(), below
}

func findField(parent *merge.Map, name string) (merge.StructField, bool) {
	if parent == nil {
		return merge.StructField{}, false
	}
	return parent.FindField(name)
}
