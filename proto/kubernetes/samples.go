package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type sample struct {
	JSON     json.RawMessage `json:"json"`
	Protobuf []byte          `json:"protobuf"`
}

// printSamples prints for each kind an object without any value, one with a value in every field, and one where
// everything that can be there is there, but empty: as JSON and as the bytes of upstream's own serializer.
func printSamples() {
	serializer := protobuf.NewSerializer(scheme, scheme)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	eachKind(func(kind schema.GroupVersionKind) {
		if isListOfTemplates(kind) {
			return
		}
		for _, fill := range []filler{{}, {pointers: true, values: true}, {pointers: true}} {
			obj, err := scheme.New(kind)
			if err != nil {
				panic(err)
			}
			fill.fill(reflect.ValueOf(obj).Elem(), 0)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			var binary bytes.Buffer
			if err := serializer.Encode(obj, &binary); err != nil {
				panic(err)
			}
			write(out, obj, binary.Bytes())
			if kind.Kind == "ResourceSlice" || kind.Kind == "Status" {
				printEvent(out, obj, binary.Bytes())
			}
		}
	})
}

// isListOfTemplates says of what the kinds below have all samples: what pods are made from is long.
func isListOfTemplates(kind schema.GroupVersionKind) bool {
	isOfPods := kind.Group == "apps" && kind.Kind != "ControllerRevisionList"
	return (isOfPods && strings.HasSuffix(kind.Kind, "List")) || kind.Kind == "ReplicationControllerList"
}

// printEvent prints a watch's event as it goes over the wire, with its length before it.
func printEvent(out *json.Encoder, obj runtime.Object, binary []byte) {
	event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: binary}}
	var framed bytes.Buffer
	writer := protobuf.LengthDelimitedFramer.NewFrameWriter(&framed)
	if err := protobuf.NewRawSerializer(scheme, scheme).Encode(event, writer); err != nil {
		panic(err)
	}
	write(out, map[string]any{"type": event.Type, "object": obj}, framed.Bytes())
}

func write(out *json.Encoder, value any, binary []byte) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	if err := out.Encode(sample{text, binary}); err != nil {
		panic(err)
	}
}

type filler struct {
	pointers, values bool
	count            int
}

func (f *filler) next() int {
	f.count++
	return f.count
}

func (f *filler) fill(v reflect.Value, depth int) {
	if !f.pointers {
		return
	}
	if f.values && f.special(v, depth) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if _, found := special[v.Type().Elem()]; found && !f.values {
			return // an empty one is null in JSON
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("protobuf") != "" {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if f.values {
				v.SetBytes([]byte{0, byte(f.next()), 0xff})
			}
			return
		}
		if f.values {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"z", "a", "é"} {
			item := reflect.New(v.Type().Elem()).Elem()
			f.fill(item, depth+1)
			if f.values {
				v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
			}
		}
	case reflect.String:
		if f.values {
			v.SetString("text " + string(rune('a'+f.next()%26)))
		}
	case reflect.Bool:
		v.SetBool(f.values)
	case reflect.Int32:
		if f.values {
			v.SetInt(int64(f.next() - 40))
		}
	case reflect.Int64:
		if f.values {
			v.SetInt(int64(f.next()-40) << 33)
		}
	case reflect.Float64:
		if f.values {
			v.SetFloat(float64(f.next()) + 0.25)
		}
	}
}

// special fills what is no plain struct, and stops recursion.
func (f *filler) special(v reflect.Value, depth int) bool {
	n := f.next()
	moment := time.Date(2026, 1, 1, 0, 0, n, n*1000, time.UTC)
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.NewTime(moment.Truncate(time.Second))
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(moment)
	case *metav1.FieldsV1:
		p.SetRawString(`{"f:spec":{"f:a":{},".":{}}}`)
	case *resource.Quantity:
		*p = resource.MustParse([]string{"1500m", "2Gi", "3", "1e3"}[n%4])
	case *intstr.IntOrString:
		*p = []intstr.IntOrString{intstr.FromInt32(int32(n)), intstr.FromString("http")}[n%2]
	case *runtime.RawExtension:
		p.Raw = []byte(`{"kind":"Parameters","apiVersion":"example.com/v1","é":[1,2.5,null,{}]}`)
	case *apiextensionsv1.JSON:
		p.Raw = []byte([]string{`{"a":[true]}`, `"text"`, `7`}[n%3])
	case *apiextensionsv1.JSONSchemaProps:
		return depth > 6
	case *apiextensionsv1.JSONSchemaPropsOrArray:
		if n%2 == 0 {
			p.Schema = &apiextensionsv1.JSONSchemaProps{Type: "string"}
		} else {
			p.JSONSchemas = []apiextensionsv1.JSONSchemaProps{{Type: "string"}, {}}
		}
	case *apiextensionsv1.JSONSchemaPropsOrBool:
		p.Allows = true
		if n%2 == 0 {
			p.Schema = &apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
	case *apiextensionsv1.JSONSchemaPropsOrStringArray:
		if n%2 == 0 {
			p.Schema = &apiextensionsv1.JSONSchemaProps{Type: "string"}
		} else {
			p.Property = []string{"a", "b"}
		}
	default:
		return false
	}
	return true
}
