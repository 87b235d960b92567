BEGIN TRANSACTION;
CREATE TABLE chunks (
	evaluation_id INTEGER NOT NULL,
	start INTEGER NOT NULL,
	stop INTEGER NOT NULL,
	seconds DOUBLE NOT NULL,
	device VARCHAR(64) NOT NULL,
	bad_rows JSON NOT NULL,
	weights_sha256 VARCHAR(64),
	PRIMARY KEY (evaluation_id, start),
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "chunks" VALUES(3,0,2,0.5,'cpu','[]','wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww');
CREATE TABLE eval_settings (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	version INTEGER NOT NULL,
	size INTEGER,
	dataset TEXT,
	derived_from VARCHAR(255),
	parent VARCHAR(255),
	tags JSON NOT NULL,
	created_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name, version)
);
INSERT INTO "eval_settings" VALUES(1,'s',1,6,'folder',NULL,NULL,'[]','2026-11-01T12:00:00+00:00');
INSERT INTO "eval_settings" VALUES(2,'even',1,3,NULL,'s',NULL,'[]','2026-11-01T12:00:00+00:00');
CREATE TABLE evaluations (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	model_id INTEGER NOT NULL,
	eval_setting_id INTEGER NOT NULL,
	variant VARCHAR(64) NOT NULL,
	source VARCHAR(64) NOT NULL,
	complete BOOLEAN NOT NULL,
	status VARCHAR(16) NOT NULL,
	run_id VARCHAR(32),
	error TEXT,
	warning TEXT,
	n_images INTEGER NOT NULL,
	n_bad INTEGER NOT NULL,
	chunk_size INTEGER,
	logits_path TEXT,
	logits_sha256 VARCHAR(64),
	samples_path TEXT,
	derived_from_id INTEGER,
	weights_sha256 VARCHAR(64),
	dataset_fingerprint VARCHAR(64),
	device VARCHAR(64),
	dtype VARCHAR(16),
	seed INTEGER,
	seconds DOUBLE,
	images_per_second DOUBLE,
	provenance JSON,
	created_at VARCHAR(32) NOT NULL,
	finished_at VARCHAR(32),
	UNIQUE (model_id, eval_setting_id, variant, source, complete),
	FOREIGN KEY(model_id) REFERENCES models (id) ON DELETE CASCADE,
	FOREIGN KEY(eval_setting_id) REFERENCES eval_settings (id) ON DELETE CASCADE,
	FOREIGN KEY(run_id) REFERENCES runs (id),
	FOREIGN KEY(derived_from_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "evaluations" VALUES(1,1,1,'','own',1,'completed','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,6,0,2,'logits/s/m-1.npy','5555555555555555555555555555555555555555555555555555555555555555','logits/s/samples-6.npz',NULL,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,1.5,4.0,'{"seed": 0}','2026-11-01T12:00:00+00:00','2026-11-01T12:00:00+00:00');
INSERT INTO "evaluations" VALUES(2,1,2,'','own',1,'completed','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,3,0,2,NULL,NULL,NULL,1,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,NULL,NULL,NULL,'2026-11-01T12:00:00+00:00','2026-11-01T12:00:00+00:00');
INSERT INTO "evaluations" VALUES(3,2,1,'','own',0,'running','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,6,0,2,'logits/s/n-3.npy',NULL,NULL,NULL,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,NULL,NULL,NULL,'2026-11-01T12:00:00+00:00',NULL);
CREATE TABLE metrics (
	evaluation_id INTEGER NOT NULL,
	name VARCHAR(128) NOT NULL,
	position INTEGER NOT NULL,
	value DOUBLE,
	ci_low DOUBLE,
	ci_high DOUBLE,
	n INTEGER,
	PRIMARY KEY (evaluation_id, name),
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "metrics" VALUES(1,'top1',0,50.0,49.0,51.0,6);
INSERT INTO "metrics" VALUES(2,'top1',0,66.5,65.5,67.5,3);
CREATE TABLE models (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	arch VARCHAR(255),
	tags JSON NOT NULL,
	created_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
INSERT INTO "models" VALUES(1,'m','resnet','[]','2026-11-01T12:00:00+00:00');
INSERT INTO "models" VALUES(2,'n','resnet','[]','2026-11-01T12:00:00+00:00');
CREATE TABLE runs (
	id VARCHAR(32) NOT NULL,
	host VARCHAR(255) NOT NULL,
	pid INTEGER NOT NULL,
	command TEXT NOT NULL,
	started_at VARCHAR(32) NOT NULL,
	heartbeat_at DOUBLE NOT NULL,
	ended_at VARCHAR(32),
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','here',4242,'eval.py --models m --eval-settings s','2026-11-01T12:00:00+00:00',1793534400.25,'2026-11-01T12:00:00+00:00');
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
INSERT INTO "schema_version" VALUES(1);
CREATE INDEX ix_evaluations_derived_from_id ON evaluations (derived_from_id);
CREATE VIEW results AS
SELECT m.name AS model, s.name AS eval_setting, x.name AS metric,
       x.value AS value, x.ci_low AS ci_low, x.ci_high AS ci_high, x.n AS n
FROM metrics x
JOIN evaluations e ON e.id = x.evaluation_id
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id
WHERE e.status = 'completed' AND e.variant = '' AND e.source = 'own' AND s.version = (SELECT MAX(t.version) FROM eval_settings t WHERE t.name = s.name);
CREATE VIEW all_results AS
SELECT m.name AS model, s.name AS eval_setting, x.name AS metric,
       x.value AS value, x.ci_low AS ci_low, x.ci_high AS ci_high, x.n AS n, e.variant AS variant, s.version AS version, e.source AS source, x.position AS position, e.id AS evaluation_id, e.finished_at AS finished_at
FROM metrics x
JOIN evaluations e ON e.id = x.evaluation_id
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id
WHERE e.status = 'completed';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('evaluations',3);
COMMIT;
