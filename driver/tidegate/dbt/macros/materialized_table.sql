{#- A model that Tidegate keeps fresh: CREATE OR ALTER MATERIALIZED TABLE, then a refresh. -#}
{% materialization materialized_table, adapter='spark' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set exists = tidegate.is_materialized_table(target_relation) -%}
  {%- set definition = tidegate.materialized_table_definition(target_relation, sql) -%}

  {{ run_hooks(pre_hooks) }}

  {%- if exists and should_full_refresh() -%}
    {%- do run_query('DROP MATERIALIZED TABLE ' ~ target_relation) -%}
    {%- set exists = false -%}
  {%- elif existing_relation is not none and not exists -%}
    {%- do drop_relation_if_exists(existing_relation) -%}
  {%- endif -%}

  {%- set changes = tidegate.materialized_table_changes(definition) if exists else ['CREATE'] -%}
  {%- set on_change = config.get('on_configuration_change', 'apply') | string -%}
  {%- if changes and exists and on_change == 'fail' -%}
    {%- do exceptions.raise_fail_fast_error(
      target_relation ~ ' differs from its model in ' ~ changes | join(', ')
      ~ ', and on_configuration_change is fail') -%}
  {%- elif changes and exists and on_change == 'continue' -%}
    {%- do exceptions.warn(
      target_relation ~ ' differs from its model in ' ~ changes | join(', ')
      ~ ', and is left as it is: on_configuration_change is continue') -%}
    {%- set changes = [] -%}
  {%- endif -%}

  {%- if changes -%}
    {% call statement('main') -%}
      {{ definition }}
    {%- endcall %}
  {%- else -%}
    {%- do store_raw_result(
      name='main', message='NONE ' ~ target_relation, code='NONE', rows_affected='-1') -%}
  {%- endif -%}
  {%- if config.get('refresh', true) -%}
    {%- do run_query('ALTER MATERIALIZED TABLE ' ~ target_relation ~ ' REFRESH') -%}
  {%- endif -%}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- The whole statement for a model, whether its table exists or not. -#}
{% macro materialized_table_definition(relation, sql) -%}
CREATE OR ALTER MATERIALIZED TABLE {{ relation }}
{%- set items = tidegate.materialized_table_items(sql) -%}
{%- if items %}
({{ items | join(', ') }})
{%- endif %}
{%- if config.persist_relation_docs() and model.description %}
COMMENT {{ tidegate.literal(model.description) }}
{%- endif %}
{%- if config.get('partition_by') %}
PARTITIONED BY ({{ tidegate.names(config.get('partition_by')) }})
{%- endif %}
{%- if config.get('options') %}
WITH (
  {%- for key, value in config.get('options').items() -%}
    {{ '' if loop.first else ', ' }}{{ tidegate.literal(key) }} = {{ tidegate.literal(value) }}
  {%- endfor -%}
)
{%- endif %}
{%- if config.get('freshness_interval') %}
FRESHNESS = {{ config.get('freshness_interval') }}
{%- endif %}
{%- if config.get('refresh_mode') %}
REFRESH_MODE = {{ config.get('refresh_mode') }}
{%- endif %}
{%- if config.get('refresh_trigger') %}
REFRESH_TRIGGER = {{ config.get('refresh_trigger') }}
{%- endif %}
{%- if config.get('execute_as') %}
EXECUTE AS USER {{ tidegate.literal(config.get('execute_as')) }}
{%- endif %}
{%- if config.get('immutable_where') %}
IMMUTABLE WHERE ({{ config.get('immutable_where') }})
{%- endif %}
AS {{ sql }}
{%- endmacro %}


{#- The column list: columns that are documented, with the types that the query gives, and the key. -#}
{% macro materialized_table_items(sql) -%}
  {%- set items, described = [], {} -%}
  {%- if config.persist_column_docs() -%}
    {%- for column in model.columns.values() if column.description -%}
      {%- do described.update({column.name | lower: column.description}) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- if described -%}
    {%- for row in run_query('DESCRIBE QUERY ' ~ sql) if row['col_name'] | lower in described -%}
      {%- do items.append(
        adapter.quote(row['col_name']) ~ ' ' ~ row['data_type']
        ~ ' COMMENT ' ~ tidegate.literal(described[row['col_name'] | lower])) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- if config.get('primary_key') -%}
    {%- do items.append(
      'PRIMARY KEY (' ~ tidegate.names(config.get('primary_key')) ~ ') NOT ENFORCED') -%}
  {%- endif -%}
  {{ return(items) }}
{%- endmacro %}


{% macro is_materialized_table(relation) -%}
  {%- set found = run_query(
    'SHOW MATERIALIZED TABLES IN ' ~ relation.without_identifier()) -%}
  {%- for row in found if row['name'].split('.')[-1] | lower == relation.identifier | lower -%}
    {{ return(true) }}
  {%- endfor -%}
  {{ return(false) }}
{%- endmacro %}


{#- What the server says it would change, such as QUERY or FRESHNESS; the refresh that follows and
    its checks are listed after it. -#}
{% macro materialized_table_changes(definition) -%}
  {%- set rows = run_query('EXPLAIN ' ~ definition).columns['object'].values() | list -%}
  {{ return(rows | reject('in', ['REFRESH', 'CHECK', 'HELD']) | list) }}
{%- endmacro %}


{% macro names(given) -%}
  {{ ([given] if given is string else given) | join(', ') }}
{%- endmacro %}


{% macro literal(value) -%}
  '{{ (value | string).replace("\\", "\\\\").replace("'", "\\'") }}'
{%- endmacro %}
