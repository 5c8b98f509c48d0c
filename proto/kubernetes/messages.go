package main

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	merge "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Types whose form in JSON is not that of their fields: the codec knows them by name.
var special = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():                                  "Time",
	reflect.TypeFor[metav1.MicroTime]():                             "MicroTime",
	reflect.TypeFor[metav1.FieldsV1]():                              "Raw",
	reflect.TypeFor[metav1.Verbs]():                                 "Strings",
	reflect.TypeFor[resource.Quantity]():                            "Quantity",
	reflect.TypeFor[intstr.IntOrString]():                           "IntOrString",
	reflect.TypeFor[runtime.RawExtension]():                         "Raw",
	reflect.TypeFor[apiextensionsv1.JSON]():                         "Raw",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "SchemaOrArray",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "SchemaOrBool",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "SchemaOrStrings",
}

// The group version of each Go package; those of the kinds are added.
var groupOf = map[string]schema.GroupVersion{
	reflect.TypeFor[schedulingv1alpha3.Workload]().PkgPath(): schedulingv1alpha3.SchemeGroupVersion, // a part of Job
}

// Types that no kind contains, but annotations in which a version keeps what it has no fields for.
var inAnnotations = []reflect.Type{
	reflect.TypeFor[autoscalingv1.HorizontalPodAutoscalerCondition](),
	reflect.TypeFor[autoscalingv1.MetricSpec](),
	reflect.TypeFor[autoscalingv1.MetricStatus](),
}

// The messages that are printed, or will be.
type messages struct {
	seen  map[reflect.Type]bool
	queue []message
	types *merge.Schema // of server-side apply
}

type message struct {
	form   reflect.Type
	merged *merge.Map
}

// printMessages prints each message with its fields, in the order of JSON: number, name in JSON and Go's type.
//
// A name with `!` is in JSON even when it is empty; `.` stands for a message whose members are inlined in JSON. More
// columns say how the value is merged (mergedAs).
func printMessages() {
	all := messages{seen: map[reflect.Type]bool{}}
	var aliases []string
	eachKind(func(kind schema.GroupVersionKind) {
		t := typeOf(kind)
		if _, found := groupOf[t.PkgPath()]; !found {
			groupOf[t.PkgPath()] = kind.GroupVersion()
		}
		types, merged := appliedAs(kind)
		if types != nil {
			all.types = types
		}
		all.add(t, merged)
		if name := kind.GroupVersion().String() + "." + kind.Kind; name != nameOf(t) {
			aliases = append(aliases, name+" = "+nameOf(t))
		}
	})
	for _, t := range inAnnotations {
		all.add(t, nil)
	}
	fmt.Println("# Made by proto/kubernetes, `go run . messages`, of k8s.io/api " + apiVersion() + "; do not edit.")
	for len(all.queue) > 0 {
		next := all.queue[0]
		all.queue = all.queue[1:]
		all.print(next)
	}
	for _, line := range aliases {
		fmt.Println(line)
	}
}

func typeOf(kind schema.GroupVersionKind) reflect.Type {
	obj, err := scheme.New(kind)
	if err != nil {
		panic(err)
	}
	return reflect.TypeOf(obj).Elem()
}

func (all *messages) add(t reflect.Type, merged *merge.Map) {
	if !all.seen[t] {
		all.seen[t] = true
		all.queue = append(all.queue, message{t, merged})
	}
}

func (all *messages) print(next message) {
	t := next.form
	fmt.Println(nameOf(t))
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		json := strings.Split(f.Tag.Get("json"), ",")
		name := json[0]
		switch {
		case name == "":
			name = "."
		case slices.Contains(json, "omitzero"):
		case !slices.Contains(json, "omitempty") || f.Type.Kind() == reflect.Struct: // no struct is empty for Go
			name += "!"
		}
		columns, below := mergedAs(all.types, next.merged, f, json[0])
		if json[0] == "" {
			below = next.merged
		}
		fmt.Printf(" %s %s %s%s\n", tag[1], name, all.typeName(f.Type, below), columns)
	}
}

func (all *messages) typeName(t reflect.Type, merged *merge.Map) string {
	if name, found := special[t]; found {
		return name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + all.typeName(t.Elem(), merged)
	case reflect.Map:
		return "map[string]" + all.typeName(t.Elem(), merged)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if _, isMessage := reflect.New(t).Interface().(runtime.ProtobufMarshaller); isMessage {
			return "Strings"
		}
		return "[]" + all.typeName(t.Elem(), merged)
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		if t.PkgPath() != "" { // a type of its own, which errors name
			return t.Kind().String() + "=" + t.String()
		}
		return t.Kind().String()
	case reflect.Struct:
		all.add(t, merged)
		return nameOf(t)
	}
	panic(fmt.Sprintf("no form for %v", t))
}

// nameOf is apiVersion and name, as objects carry them; types without a group of their own have that of their package.
func nameOf(t reflect.Type) string {
	group, found := groupOf[t.PkgPath()]
	if !found {
		panic(fmt.Sprintf("%v is in no group", t))
	}
	return group.String() + "." + t.Name()
}

func apiVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "k8s.io/api" {
			return dependency.Version
		}
	}
	return "(unknown)"
}
